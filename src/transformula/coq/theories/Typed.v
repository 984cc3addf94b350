(* Formulas as they are typed: the definitions that a reader has to believe. There is no proof in this file. *)
Require Export Reals List NArith ZArith.
Require Import QArith.
Import ListNotations.
Require Export Transformula.Transformer.
Open Scope R_scope.

(* A value; the condition under which it is defined, since Coq's functions are total; the number if it is written as one. *)
Record typed := Typed { result : R; domain : Prop; rational : option Q }.
Declare Scope typed_scope.
Delimit Scope typed_scope with typed.
Bind Scope typed_scope with typed.
Definition variable (x : R) : typed := Typed x True None.
Definition literal (n : Z) (d : positive) : typed :=
  Typed (match d with 1%positive => IZR n | _ => IZR n / IZR (Zpos d) end) True (Some (n # d)%Q).
Definition call (f : R -> R) (a : typed) : typed := Typed (f (result a)) (domain a) None.
Definition call_2 (f : R -> R -> R) (a b : typed) : typed := Typed (f (result a) (result b)) (domain a /\ domain b) None.
Definition if_ (condition : R -> Prop) (a : typed) : typed :=
  Typed (result a) (domain a /\ condition (result a)) (rational a).

Definition opposite (a : typed) : typed := Typed (- result a) (domain a) (option_map Qopp (rational a)).
Definition over (a b : typed) : typed :=
  Typed (result a / result b) (domain a /\ domain b /\ result b <> 0)
    match rational a, rational b with Some p, Some q => Some (p / q)%Q | _, _ => None end.
Infix "+" := (call_2 Rplus) : typed_scope.
Infix "-" := (call_2 Rminus) : typed_scope.
Infix "*" := (call_2 Rmult) : typed_scope.
Infix "/" := over : typed_scope.
Notation "- x" := (opposite x) : typed_scope.

(* What a formula may call; a variable of the same name hides it. *)
Definition v_pi : typed := variable PI.
Definition v_e : typed := variable (exp 1).
Definition v_E : typed := v_e.
Definition v_sin := call sin.
Definition v_cos := call cos.
Definition v_atan := call atan.
Definition v_exp := call exp.
Definition v_sinh := call sinh.
Definition v_cosh := call cosh.
Definition v_tanh := call tanh.
Definition v_abs := call Rabs.
Definition v_tan (a : typed) := call tan (if_ (fun x => cos x <> 0) a).
Definition v_sqrt (a : typed) := call sqrt (if_ (Rle 0) a).
Definition v_ln (a : typed) := call ln (if_ (Rlt 0) a).
Definition v_log := v_ln.
Definition v_asin (a : typed) := call asin (if_ (fun x => -1 <= x <= 1) a).
Definition v_acos (a : typed) := call acos (if_ (fun x => -1 <= x <= 1) a).
(* x^2; x^-2 = 1 / x^2; x^(3/2) = x^1 sqrt x; any other power is exp (b ln a), for positive a. *)
Definition inverse_if (yes : bool) (a : typed) : typed := if yes then over (literal 1 1) a else a.
Definition power (a b : typed) : typed :=
  match option_map Qred (rational b) with
  | Some (n # 1)%Q => inverse_if (Z.ltb n 0) (call (fun x => x ^ Z.to_nat (Z.abs n)) a)
  | Some (n # 2)%Q => inverse_if (Z.ltb n 0) (call (fun x => x ^ Z.to_nat (Z.abs n / 2)) a * v_sqrt a)
  | _ => call_2 Rpower (if_ (Rlt 0) a) b
  end.
Infix "^" := power : typed_scope.

(* A comparison; and the piece that it chooses, which alone has to be defined. *)
Record test := Test { holds : Prop; decided : {holds} + {~ holds}; tested : Prop }.
Bind Scope typed_scope with test.
Definition less (a b : typed) : test := Test (result a < result b) (Rlt_dec _ _) (domain a /\ domain b).
Definition at_most (a b : typed) : test := Test (result a <= result b) (Rle_dec _ _) (domain a /\ domain b).
Infix "<" := less : typed_scope.
Infix "<=" := at_most : typed_scope.
Notation "a > b" := (less b a) : typed_scope.
Notation "a >= b" := (at_most b a) : typed_scope.
Definition v_True : test := Test True (left I) True.
Definition v_where (c : test) (a b : typed) : typed :=
  Typed (if decided c then result a else result b) (tested c /\ if decided c then domain a else domain b) None.

(* Of a list: the largest, the smallest, the sum, the product; the first piece whose condition holds. *)
Definition nothing : typed := Typed 0 False None.
Fixpoint joined (f : typed -> typed -> typed) (l : list typed) : typed :=
  match l with [] => nothing | [a] => a | a :: l => f a (joined f l) end.
Definition v_max := joined (call_2 Rmax).
Definition v_min := joined (call_2 Rmin).
Definition v_sum := joined (call_2 Rplus).
Definition v_prod := joined (call_2 Rmult).
Fixpoint v_Piecewise (l : list (typed * test)) : typed :=
  match l with [] => nothing | (a, c) :: l => v_where c a (v_Piecewise l) end.

(* Functions that are short for others, as docs/functions.md defines them. *)
Section Short.
Local Open Scope typed_scope.
Variables u v w : typed.
Let one : typed := literal 1 1.
Let two : typed := literal 2 1.
Definition v_log2 := v_log u / v_log two.
Definition v_log10 := v_log u / v_log (literal 10 1).
Definition v_log1p := v_log (one + u).
Definition v_exp2 := two ^ u.
Definition v_expm1 := v_exp u - one.
Definition v_pow := u ^ v.
Definition v_hypot := v_sqrt (u ^ two + v ^ two).
Definition v_sec := one / v_cos u.
Definition v_csc := one / v_sin u.
Definition v_cot := v_cos u / v_sin u.
Definition v_sech := one / v_cosh u.
Definition v_csch := one / v_sinh u.
Definition v_coth := v_cosh u / v_sinh u.
Definition v_sigmoid := (one + v_tanh (u / two)) / two.
Definition v_logit := v_log (u / (one - u)).
Definition v_softplus := v_log (one + v_exp u).
Definition v_relu := v_max [u; literal 0 1].
Definition v_silu := u * (one + v_tanh (u / two)) / two.
Definition v_softsign := u / (one + v_abs u).
Definition v_clip := v_min [v_max [u; v]; w].
Definition v_radians := u * v_pi / literal 180 1.
Definition v_degrees := u * literal 180 1 / v_pi.
End Short.

(* Other names for the same. *)
Definition v_arctan := v_atan.
Definition v_Abs := v_abs.
Definition v_Max := v_max.
Definition v_Min := v_min.
Definition v_power := v_pow.
Definition v_expit := v_sigmoid.
Definition v_swish := v_silu.
Definition v_clamp := v_clip.
Definition v_deg2rad := v_radians.
Definition v_rad2deg := v_degrees.

(* The box: of no use to a proof unless both ends are defined, and in this order. And the goal. *)
Definition inside (low : typed) (x : R) (high : typed) : Prop :=
  domain low /\ domain high /\ result low < result high -> result low <= x <= result high.
Definition matches (computed : R) (formula : typed) (bound : R) : Prop :=
  domain formula /\ Rabs (computed - result formula) <= bound.
