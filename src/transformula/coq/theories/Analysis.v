(* Errors carried through functions and products, and the tactics by which a circuit is seen to be its formula. *)
Require Import Reals Lra Psatz Coquelicot.Coquelicot Interval.Tactic.
Require Transformula.Typed.
Open Scope R_scope.

Lemma two_sided x e : Rabs x <= e -> -e <= x <= e.
Proof. apply Rabs_le_between. Qed.

(* An argument that is off: the mean value theorem. *)
Lemma moved (f : R -> R) lo hi L :
  (forall u, lo <= u <= hi -> exists l, is_derive f u l /\ Rabs l <= L) ->
  forall a b, lo <= a <= hi -> lo <= b <= hi -> Rabs (f a - f b) <= L * Rabs (a - b).
Proof.
  intros H a b Ha Hb.
  assert (I : forall x, Rmin b a <= x <= Rmax b a -> lo <= x <= hi).
  { intros x. unfold Rmin, Rmax. destruct (Rle_dec b a); lra. }
  destruct (MVT_gen f b a (Derive f)) as [c [Hc E]].
  - intros x Hx. destruct (H x) as [l [Hl _]]; [apply I; lra|]. rewrite (is_derive_unique _ _ _ Hl). exact Hl.
  - intros x Hx. destruct (H x (I x Hx)) as [l [Hl _]]. apply continuity_pt_filterlim.
    apply (ex_derive_continuous f). now exists l.
  - rewrite E, Rabs_mult. destruct (H c (I c Hc)) as [l [Hl B]]. rewrite (is_derive_unique _ _ _ Hl).
    apply Rmult_le_compat_r; [apply Rabs_pos | exact B].
Qed.

Lemma product_error a b a' b' ea eb A B : -ea <= a' - a <= ea -> -eb <= b' - b <= eb -> Rabs a <= A -> Rabs b <= B ->
  -(A * eb + B * ea + ea * eb) <= a' * b' - a * b <= A * eb + B * ea + ea * eb.
Proof.
  intros Ha Hb HA HB. replace (a' * b' - a * b) with (a * (b' - b) + b * (a' - a) + (a' - a) * (b' - b)) by ring.
  assert (Ha' : Rabs (a' - a) <= ea) by (apply Rabs_le; lra). assert (Hb' : Rabs (b' - b) <= eb) by (apply Rabs_le; lra).
  apply Rabs_le_between. eapply Rle_trans; [apply Rabs_triang|]. apply Rplus_le_compat.
  - eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult. apply Rplus_le_compat; apply Rmult_le_compat; auto using Rabs_pos.
  - rewrite Rabs_mult. apply Rmult_le_compat; auto using Rabs_pos.
Qed.
Lemma relu_moved a b e : -e <= a - b <= e -> -e <= Rmax 0 a - Rmax 0 b <= e.
Proof. unfold Rmax. destruct (Rle_dec 0 a), (Rle_dec 0 b); lra. Qed.
Lemma relu_range a lo hi : lo <= a <= hi -> 0 <= Rmax 0 a <= Rmax 0 hi.
Proof. unfold Rmax. destruct (Rle_dec 0 a), (Rle_dec 0 hi); lra. Qed.

(* Interval knows absolute values, but neither the larger nor the smaller of two numbers. *)
Lemma max_by_abs a b : Rmax a b = (a + b + Rabs (a - b)) / 2.
Proof. unfold Rmax, Rabs. destruct (Rle_dec a b), (Rcase_abs (a - b)); lra. Qed.
Lemma min_by_abs a b : Rmin a b = (a + b - Rabs (a - b)) / 2.
Proof. unfold Rmin, Rabs. destruct (Rle_dec a b), (Rcase_abs (a - b)); lra. Qed.
(* Named terms with known bounds as variables, which are all that Interval takes. *)
Ltac atoms := repeat match goal with H : _ <= ?m <= _ |- context [?m] =>
  tryif is_var m then fail else (let x := fresh in revert H; generalize m; intros x H) end.
Ltac kinks := rewrite ?max_by_abs, ?min_by_abs.

(* Equal functions of equal arguments. *)
Ltac nonzero := repeat match goal with |- _ /\ _ => split end;
  first [ exact PI_neq0 | lra | (kinks; apply Rgt_not_eq, Rlt_gt; interval) | (kinks; apply Rlt_not_eq; interval) | nra | idtac ].
(* Equal terms: by field, or with the squares of sines in those of cosines, of one angle or two. *)
Lemma sine_square t : sin t * sin t = 1 - cos t * cos t.
Proof. pose proof (sin2_cos2 t). unfold Rsqr in *. lra. Qed.
Ltac circles := match goal with |- context [sin ?t] => first
  [ solve [field [(sine_square t)]; nonzero]
  | match goal with |- context [sin ?u] => tryif constr_eq t u then fail else solve [field [(sine_square t) (sine_square u)]; nonzero] end ] end.
Ltac equal_terms := first [solve [field; nonzero] | circles].
Ltac waves := match goal with  (* up to their ends, where intervals are rounded *)
  | |- context [sin ?t] => pose proof (SIN_bound t); lra | |- context [cos ?t] => pose proof (COS_bound t); lra end.
Ltac positive := first [lra | kinks; interval | waves].
Ltac same_arguments f := repeat match goal with
  | |- context [f ?a] => match goal with |- context [f ?b] =>
      tryif constr_eq a b then fail else (replace (f a) with (f b) by (f_equal; equal_terms)) end end.
Ltac same_angles := repeat match goal with |- context [sin ?a] => match goal with |- context [cos ?b] =>
  tryif constr_eq a b then fail else (replace (sin a) with (sin b) by (f_equal; field; nonzero)) end end.
(* Signs term by term: Interval does not see that a sum of squares is not negative. *)
Ltac at_once := first [lra | interval | waves].
Ltac sign := first [ at_once | lazymatch goal with
  | |- _ <> 0 => first [apply Rgt_not_eq, Rlt_gt; sign | apply Rlt_not_eq; sign]
  | |- 0 <= ?a * ?a => apply Rle_0_sqr
  | |- 0 <= ?a ^ ?n => first [ apply pow_le; sign
      | let k := eval cbv in (Nat.div2 n) in replace (a ^ n) with ((a ^ 2) ^ k) by (rewrite <- pow_mult; reflexivity); apply pow_le, pow2_ge_0 ]
  | |- 0 <= sqrt _ => apply sqrt_pos
  | |- 0 <= Rabs _ => apply Rabs_pos
  | |- 0 < exp _ => apply exp_pos
  | |- 0 < sqrt _ => apply sqrt_lt_R0; sign
  | |- 0 < _ ^ _ => apply pow_lt; sign
  | |- 0 < / _ => apply Rinv_0_lt_compat; sign
  | |- 0 < _ / _ => apply Rdiv_lt_0_compat; sign
  | |- 0 < _ * _ => apply Rmult_lt_0_compat; sign
  | |- 0 < _ + _ => first [apply Rplus_lt_le_0_compat; [at_once|sign] | apply Rplus_le_lt_0_compat; [sign|at_once]]
  | |- 0 <= _ + _ => apply Rplus_le_le_0_compat; sign
  | |- 0 <= _ * _ => apply Rmult_le_pos; sign
  | |- 0 <= _ - _ => fail
  | |- 0 <= - _ => fail
  | |- 0 <= _ => apply Rlt_le; sign end ].
Ltac double_angles := repeat match goal with |- context [cos ?a] => match goal with |- context [cos ?b] =>
  tryif constr_eq a b then fail else (replace (cos a) with (cos b * cos b - sin b * sin b) by (rewrite <- cos_2a; f_equal; field; nonzero)) end end.
Ltac squares_of e := match goal with |- 0 <= ?x => replace x with e by
    (same_arguments sin; same_arguments cos; same_angles; first [equal_terms | double_angles; equal_terms]) end;
  repeat apply Rplus_le_le_0_compat; first [apply pow2_ge_0 | sign | nra].
Lemma exp_minus_ln v : 0 < v -> exp (-1 * ln v) = / v.
Proof. intros H. replace (-1 * ln v) with (- ln v) by ring. now rewrite exp_Ropp, exp_ln. Qed.
Lemma tanh_exp v : tanh v = 1 - 2 / (exp (2 * v) + 1).
Proof.
  unfold tanh, sinh, cosh. replace (2 * v) with (v + v) by ring. rewrite exp_plus, exp_Ropp.
  pose proof (exp_pos v). field. split; nra.
Qed.
(* asin and acos up to the ends of their domain. *)
Lemma asin_atan_of v : -1 <= v <= 1 -> asin v = 2 * atan (v / (1 + sqrt (1 - v * v))).
Proof.
  intros H. pose proof (asin_bound v) as B. pose proof PI_RGT_0 as P. set (t := asin v / 2).
  assert (S : 2 * sin t * cos t = v) by (rewrite <- sin_2a; unfold t; replace (2 * (asin v / 2)) with (asin v) by lra; now apply sin_asin).
  assert (C : 2 * (cos t * cos t) = 1 + sqrt (1 - v * v)).
  { replace (1 - v * v) with (1 - Rsqr v) by reflexivity. rewrite <- (cos_asin v H).
    replace (cos (asin v)) with (cos (2 * t)) by (f_equal; unfold t; lra). rewrite cos_2a_cos. lra. }
  assert (D : 0 < cos t) by (apply cos_gt_0; unfold t; lra).
  replace (v / (1 + sqrt (1 - v * v))) with (tan t) by (rewrite <- C, <- S; unfold tan; field; lra).
  rewrite atan_tan by (unfold t; lra). unfold t. lra.
Qed.
Lemma acos_atan_of v : -1 <= v <= 1 -> acos v = PI / 2 - 2 * atan (v / (1 + sqrt (1 - v * v))).
Proof. intros H. rewrite acos_asin by exact H. now rewrite asin_atan_of. Qed.
Lemma ln_quotient a b : 0 < a -> 0 < b -> ln (a / b) = ln a - ln b.
Proof. intros. unfold Rdiv. rewrite ln_mult, ln_Rinv; auto using Rinv_0_lt_compat. Qed.
Ltac exponentials := repeat match goal with |- context [exp ?a] => match a with context [ln ?v] =>
  progress (rewrite ?exp_plus; rewrite ?exp_minus_ln by positive; rewrite ?exp_ln by positive) end end.
Ltac cases_of_relu := unfold Rmax, Rmin, Rabs;
  repeat match goal with  (* the innermost first *)
  | |- context [Rle_dec ?a ?b] => lazymatch constr:((a, b)) with context [Rle_dec] => fail
      | context [Rlt_dec] => fail | context [Rcase_abs] => fail | _ => destruct (Rle_dec a b); try (exfalso; lra) end
  | |- context [Rlt_dec ?a ?b] => lazymatch constr:((a, b)) with context [Rle_dec] => fail | context [Rlt_dec] => fail
      | context [Rcase_abs] => fail | _ => destruct (Rlt_dec a b); try (exfalso; lra) end
  | |- context [Rcase_abs ?a] => destruct (Rcase_abs a); try (exfalso; lra) end.
Ltac at_seams := repeat match goal with
  | |- context [exp ?a] => replace (exp a) with 1 by (replace a with 0 by lra; now rewrite exp_0)
  | |- context [sin ?a] => replace (sin a) with 0 by (replace a with 0 by lra; now rewrite sin_0)
  | |- context [cos ?a] => replace (cos a) with 1 by (replace a with 0 by lra; now rewrite cos_0)
  | |- context [ln ?a] => replace (ln a) with 0 by (replace a with 1 by lra; now rewrite ln_1)
  | |- context [sqrt ?a] => replace (sqrt a) with 0 by (replace a with 0 by lra; now rewrite sqrt_0)
  | |- context [atan ?a] => replace (atan a) with 0 by (replace a with 0 by lra; now rewrite atan_0) end.
Ltac arguments := same_arguments exp; same_arguments sin; same_arguments cos; same_angles; same_arguments ln; same_arguments sqrt;
  same_arguments atan; same_arguments tan.
(* Powers of one base whose exponents differ by a whole number. *)
Ltac same_powers := repeat match goal with |- context [exp ?a] => match a with context [ln ?v] => match goal with |- context [exp ?b] => match b with context [ln v] =>
  tryif constr_eq a b then fail else first
  [ replace (exp a) with (exp b * v) by (replace a with (b + ln v) by (field; nonzero); rewrite exp_plus, exp_ln by positive; reflexivity)
  | replace (exp a) with (exp b * / v) by (replace a with (b + -1 * ln v) by (field; nonzero); rewrite exp_plus, exp_minus_ln by positive; reflexivity)
  | replace (exp a) with (exp b * v * v) by (replace a with (b + ln v + ln v) by (field; nonzero); rewrite !exp_plus, exp_ln by positive; reflexivity)
  | replace (exp a) with (exp b * / v * / v) by (replace a with (b + -1 * ln v + -1 * ln v) by (field; nonzero); rewrite !exp_plus, exp_minus_ln by positive; reflexivity) ]
  end end end end.
Ltac same_terms := first [lra | nra | solve [field; nonzero]].
Lemma abs_nothing a : a = 0 -> Rabs a = 0.
Proof. intros ->. exact Rabs_R0. Qed.
Lemma nonpositive a : 0 <= - a -> a <= 0.
Proof. lra. Qed.
(* Kinks as absolute values, the innermost first: equal to an earlier one, of a known sign, or new. *)
Ltac sizes_back := repeat match goal with E : ?s = Rabs _ |- _ => subst s end.
Ltac size_of a := first
  [ match goal with E : ?s = Rabs ?b |- _ => replace (Rabs a) with s by (rewrite E;
      first [apply f_equal; first [ring | equal_terms] | rewrite <- (Rabs_Ropp b); apply f_equal; first [ring | equal_terms]]) end
  | rewrite (abs_nothing a) by ring
  | rewrite (Rabs_pos_eq a) by (sizes_back; sign)
  | rewrite (Rabs_left1 a) by (sizes_back; apply nonpositive; sign)
  | let s := fresh "s" in remember (Rabs a) as s ].
Ltac same_sizes := repeat match goal with |- context [Rabs ?a] => lazymatch a with context [Rabs _] => fail | _ => size_of a end end; sizes_back.
(* Quotients that need no common denominator, whose numerator would have to be shown to differ from 0. *)
Ltac same_inverses := unfold Rdiv; repeat match goal with
  | |- context [/ ?a] => lazymatch a with IZR _ => fail | _ => match goal with |- context [/ ?b] => lazymatch b with IZR _ => fail | _ =>
      tryif constr_eq a b then fail else (replace (/ a) with (/ b) by (f_equal; first [ring | equal_terms])) end end end end.
(* sqrt (a^2 + b) - a, which is computed as sqrt b tan (pi/4 - atan (a / sqrt b) / 2). *)
Lemma tan_of_half u : tan (PI / 4 - atan u / 2) = sqrt (u * u + 1) - u.
Proof.
  set (t := PI / 4 - atan u / 2). pose proof (atan_bound u) as B. pose proof PI_RGT_0 as P.
  assert (C : 0 < cos t) by (apply cos_gt_0; unfold t; lra).
  assert (S2 : 2 * sin t * cos t = cos (atan u)) by (rewrite <- sin_2a, <- sin_shift; f_equal; unfold t; lra).
  assert (C2 : 2 * (cos t * cos t) = 1 + sin (atan u)) by
    (replace (sin (atan u)) with (cos (2 * t)) by (rewrite <- cos_shift; f_equal; unfold t; lra); rewrite cos_2a_cos; lra).
  assert (R : 0 < sqrt (u * u + 1)) by (apply sqrt_lt_R0; nra).
  pose proof (sqrt_sqrt (u * u + 1) ltac:(nra)) as Q.
  rewrite cos_atan in S2. rewrite sin_atan in C2. unfold Rsqr in *. rewrite (Rplus_comm 1 (u * u)) in *.
  set (s := sqrt (u * u + 1)) in *. assert (s <> 0) by lra. assert (N : 1 + u / s <> 0) by nra.
  unfold tan. replace (sin t / cos t) with (2 * sin t * cos t / (2 * (cos t * cos t))) by (field; lra).
  rewrite S2, C2. assert (s + u <> 0) by (intros E; apply N; replace (1 + u / s) with ((s + u) / s) by (field; lra); rewrite E; unfold Rdiv; ring).
  apply (Rmult_eq_reg_r (s + u)); [|assumption]. replace ((s - u) * (s + u)) with 1 by (ring_simplify; lra). field. split; lra.
Qed.
Ltac by_roots := repeat match goal with |- context [tan ?a] => match a with context [atan ?u] =>
    replace (tan a) with (sqrt (u * u + 1) - u) by (rewrite <- tan_of_half; f_equal; field) end end;
  match goal with |- context [sqrt ?a] => let H := fresh in solve
  [ assert (H : sqrt a * sqrt a = a) by (apply sqrt_sqrt; sign);
    repeat match goal with |- context [sqrt ?c] => match goal with |- context [sqrt ?b] =>
      tryif constr_eq b c then fail else tryif constr_eq a c then fail else
        replace (sqrt c) with (sqrt a * sqrt b) by (rewrite <- sqrt_mult by sign; f_equal; field [H]; sign) end end;
    field [H]; repeat split; sign ] end.
Ltac by_atoms := kinks; same_sizes; arguments; same_powers; same_sizes; same_inverses; first [ring | equal_terms].
Ltac meaning := unfold Rpower; rewrite ?ln_exp; rewrite ?tanh_exp; rewrite ?asin_atan_of, ?acos_atan_of by (split; positive); unfold sinh, cosh; rewrite ?ln_quotient by positive; exponentials; arguments;
  first [ lra | equal_terms | solve [by_atoms] | by_roots | cases_of_relu; first [same_terms | arguments; same_terms | at_seams; arguments; same_terms] ].
Ltac slope_domain u := repeat split; first [ lra | interval with (i_bisect u) | apply Rgt_not_eq, Rlt_gt; interval with (i_bisect u)
  | apply Rlt_not_eq; interval with (i_bisect u) | idtac ].
Ltac condition := kinks; first [ exact I | sign | nra ].
Ltac conditions := unfold Rpower; rewrite ?asin_atan_of, ?acos_atan_of by (split; positive); repeat match goal with
  | |- _ /\ _ => split
  | |- context [Rlt_dec ?a ?b] => destruct (Rlt_dec a b) as [?|?%Rnot_lt_le]
  | |- context [Rle_dec ?a ?b] => destruct (Rle_dec a b) as [?|?%Rnot_le_lt] end.
(* A hypothesis of Model.v on a variable, in plain terms: the ends of its interval are defined, and in order. *)
Ltac open_box J := unfold Typed.inside in J;
  cbv -[Rplus Rminus Rmult Rdiv Ropp Rinv IZR pow Rpower sqrt exp ln sin cos tan atan asin acos sinh cosh tanh Rabs Rmin Rmax PI Rle Rlt not Rlt_dec Rle_dec] in J;
  lazymatch type of J with ?ends -> _ => specialize (J ltac:(conditions; condition)) end.
