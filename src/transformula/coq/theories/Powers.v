(* Fang's polynomial models read by computation: in token i every slot is a linear form of the powers of t_i, of 1 and of the
   token's one-hot; hardmax picks the diagonal where its offset is large enough, and pairs of ReLUs are linear. *)
Require Import Reals Lra Lia List NArith ZArith QArith Qreals Bool FinFun.
Require Import Transformula.Transformer Transformula.Attention Transformula.Reading Transformula.Analysis.
Import ListNotations.
Open Scope R_scope.

Definition hot : N := 1000.  (* basis: t^b for b < hot, then the one-hots *)
Definition basis (t : R) (i : N) : vector := fun b =>
  if N.ltb b hot then t ^ (N.to_nat b) else if N.eqb b (hot + i) then 1 else 0.

(* What the attention adds: left * right + offset. *)
Definition monomial (f : form) : option (N * Q) := match f with [(b, c)] => if N.ltb b hot then Some (b, c) else None | _ => None end.
Definition offset_row (data : list form) (h : head) (i : N) : option Q :=
  match row_form (query h) (N.succ i) data, row_form (key h) (N.succ i) data with
  | [(b, c)], [(b', c')] => if N.eqb b (hot + i) && N.eqb b' (hot + i) && Qeq_bool c' 1 then Some c else None
  | _, _ => None
  end.
Definition Qpower' (q : Q) (n : N) : Q := N.iter n (fun a => Qred (q * a)) 1%Q.
Definition read_product (M : model) (reach : Q) (data : list form) (h : head) : option (N * form) :=
  match monomial (row_form (query h) 0 data), monomial (row_form (key h) 0 data), offset_row data h 0,
        nodup N.eq_dec (map at_row (value h)), projection h with
  | Some (b, c), Some (b', c'), Some C, [slot], None =>
      let l := Qred (c * c') in
      if N.eqb (size h) (N.succ (tokens M)) && N.ltb (b + b') hot
         && forallb (fun i => match offset_row data h i with Some D => Qeq_bool D C | None => false end) (first (tokens M))
         && Qle_bool (2 * Qabs' l * Qpower' reach (b + b')) C
         && match row_form (value h) slot data with [(0%N, v)] => Qeq_bool v 1 | _ => false end
      then Some (slot, [((b + b')%N, l); (0%N, C)]) else None
  | _, _, _, _, _ => None
  end.
Fixpoint read_products (M : model) (reach : Q) (data : list form) (hs : list head) : option (list (N * form)) :=
  match hs with
  | [] => Some []
  | h :: hs => match read_product M reach data h, read_products M reach data hs with Some p, Some l => Some (p :: l) | _, _ => None end
  end.
Definition heard_form (l : list (N * form)) (slot : N) : form :=
  fold_right (fun p a => if N.eqb (fst p) slot then add (snd p) a else a) [] l.

(* What a layer adds to a slot: c ReLU(f) - c ReLU(-f) = c f. *)
Definition unit_form (f : layer) (data : list form) (u : N) : form := clean (add (row_form (hidden f) u data) (bias_form (hidden_bias f) u)).
Definition same_form (f g : form) : bool := match clean (add f g) with [] => true | _ => false end.
Definition pair_form (f : layer) (data : list form) (slot : N) : option form :=
  match filter (fun e => N.eqb (at_row e) slot) (outgoing f) with
  | [] => Some (bias_form (outgoing_bias f) slot)
  | [e; e'] =>
      if Qeq_bool (rational e + rational e') 0 && same_form (unit_form f data (at_column e)) (unit_form f data (at_column e'))
      then Some (add (scale (rational e) (unit_form f data (at_column e))) (bias_form (outgoing_bias f) slot)) else None
  | _ => None
  end.
Fixpoint all_some {A} (l : list (option A)) : option (list A) :=
  match l with [] => Some [] | Some a :: l => match all_some l with Some l => Some (a :: l) | None => None end | None :: _ => None end.
Definition read_powers_block (M : model) (reach : Q) (b : block) (data : list form) : option (list form) :=
  match attention b, read_products M reach data (heads b) with
  | Hardmax, Some l =>
      if forallb (fun h => narrow (width M) (query h) && narrow (width M) (key h) && narrow (width M) (value h)) (heads b) then
      let here := map (fun slot => clean (add (nth (N.to_nat slot) data []) (heard_form l slot))) (first (width M)) in
      match feed_forward b with
      | None => Some here
      | Some f =>
          if narrow (width M) (hidden f) then
            all_some (map (fun slot => match pair_form f here slot with
              Some g => Some (clean (add (nth (N.to_nat slot) here []) g)) | None => None end) (first (width M)))
          else None
      end else None
  | _, _ => None
  end.
Fixpoint read_powers_blocks (M : model) (reach : Q) (bs : list block) (data : list form) : option (list form) :=
  match bs with
  | [] => Some data
  | b :: bs => match read_powers_block M reach b data with Some data => read_powers_blocks M reach bs data | None => None end
  end.
Definition start_form (p : N) (hots : list N) (M : model) (slot : N) : form :=
  if N.eqb slot p then [(1%N, 1%Q)] else
  match filter (fun i => N.eqb (nth (N.to_nat i) hots (width M)) slot) (first (tokens M)) with
  | i :: _ => [((hot + i)%N, 1%Q)]
  | [] => if Qeq_bool (stored (memory M) 0 slot) 1 then [(0%N, 1%Q)] else []
  end.
Definition start_value (p i slot : N) (f : form) : Q :=
  if N.eqb slot p then 0%Q else match f with (b, _) :: _ => if N.eqb b 0 || N.eqb b (hot + i) then 1%Q else 0%Q | [] => 0%Q end.
Definition start_fits (p : N) (hots : list N) (M : model) : bool :=
  forallb (fun i => forallb (fun slot => Qeq_bool (stored (memory M) i slot) (start_value p i slot (start_form p hots M slot)))
                            (first (width M))) (first (tokens M))
  && forallb (fun e => N.eqb (at_row e mod width M) p) (embedding M) && N.ltb 0 (width M).
Definition ends := list (Q * Q).  (* lower and upper end of every input *)
Definition end_of (xs : ends) (j : N) : Q * Q := nth (N.to_nat j) xs (0%Q, 0%Q).
Definition times (c : Q) (p : Q * Q) : Q * Q := if Qle_bool 0 c then ((c * fst p)%Q, (c * snd p)%Q) else ((c * snd p)%Q, (c * fst p)%Q).
Fixpoint span (m : matrix) (r : N) (xs : ends) : Q * Q :=
  match m with
  | [] => (0%Q, 0%Q)
  | e :: m => let (a, b) := span m r xs in if N.eqb (at_row e) r
      then let (c, d) := times (rational e) (end_of xs (at_column e)) in (Qred (c + a), Qred (d + b)) else (a, b)
  end.
Definition within (p : Q * Q) (reach : Q) : bool := Qle_bool (- reach) (fst p) && Qle_bool (snd p) reach.
Definition read_powers (M : model) (p : N) (hots : list N) (xs : ends) (reach : Q) : option (list form) :=
  if start_fits p hots M && forallb (fun i => within (span (embedding M) (i * width M + p) xs) reach) (first (tokens M))
     && forallb (fun e => N.ltb (at_column e / width M) (tokens M)) (readout M)
  then read_powers_blocks M reach (blocks M) (map (start_form p hots M) (first (width M))) else None.

(* Why that is what the model computes. *)
Lemma Qeq_real a b : Qeq_bool a b = true -> Q2R a = Q2R b.
Proof. intros H. apply Qeq_bool_iff in H. now apply Qeq_eqR. Qed.
Lemma largest_in l : l <> [] -> In (largest l) l /\ forall s, In s l -> s <= largest l.
Proof.
  induction l as [|a l IH]; [congruence|]. intros _. destruct l as [|b l]; [simpl; split; [auto|intros s [<-|[]]; lra]|].
  destruct IH as [I J]; [discriminate|]. change (largest (a :: b :: l)) with (Rmax a (largest (b :: l))). split.
  - unfold Rmax. destruct (Rle_dec a (largest (b :: l))); [right; exact I | now left].
  - intros s [<-|H]; [apply Rmax_l|]. eapply Rle_trans; [now apply J | apply Rmax_r].
Qed.
Lemma keep_sum best l (v : N -> R) (ts : list N) (g : N -> R) : l = map g ts -> In best l -> (forall t, In t ts -> v t = 1) ->
  sum (map (fun p => fst p * snd p) (combine (keep best l) (map v ts))) = best.
Proof.
  intros ->. induction ts as [|t ts IH]; intros I V; [destruct I|]. simpl. destruct (Req_EM_T (g t) best) as [E|E].
  - simpl. rewrite V by now left. rewrite E.
    assert (Z : forall (l : list R) ws, sum (map (fun p => fst p * snd p) (combine (map (fun _ => 0) l) ws)) = 0).
    { induction l as [|a l IHl]; intros [|w ws]; simpl; try reflexivity. rewrite IHl. ring. }
    rewrite Z. ring.
  - simpl. rewrite IH; [ring| |intros; apply V; now right]. destruct I as [I|I]; [contradiction|exact I].
Qed.
Lemma picked k l h s i slot : k = Hardmax -> In i l -> (forall j, In j l -> row (value h) slot (s j) = 1) ->
  (forall j, In j l -> score h s i j <= score h s i i) -> mixed k l h s i slot = score h s i i.
Proof.
  intros -> I V G. unfold mixed, pattern. assert (B : largest (map (score h s i) l) = score h s i i).
  { destruct (largest_in (map (score h s i) l)) as [A B]; [destruct l; [destruct I|discriminate]|].
    apply Rle_antisym; [|apply B; now apply in_map]. apply in_map_iff in A as [j [<- J]]. now apply G. }
  rewrite B. apply (keep_sum _ _ _ l (score h s i)); [reflexivity | now apply in_map | exact V].
Qed.
Lemma pow_reach (t : R) (reach : Q) n : Rabs t <= Q2R reach -> Rabs (t ^ N.to_nat n) <= Q2R (Qpower' reach n).
Proof.
  intros H. assert (E : Q2R (Qpower' reach n) = Q2R reach ^ N.to_nat n).
  { unfold Qpower'. rewrite N2Nat.inj_iter. induction (N.to_nat n) as [|m IH]; [exact RMicromega.Q2R_1|].
    simpl. rewrite real_red, Q2R_mult. simpl in IH. now rewrite IH. }
  rewrite E, <- RPow_abs. apply pow_incr. split; [apply Rabs_pos|exact H].
Qed.

Section Correct.
Variable M : model.
Variable reach : Q.
Variable t : N -> R.
Hypothesis small : forall i, (i < tokens M)%N -> Rabs (t i) <= Q2R reach.
Let n := tokens M.
Definition state (s : stream) (data : list form) : Prop := forall i, (i < n)%N -> follows (basis (t i) i) (width M) (s i) data.

Lemma eval_monomial f b c i : monomial f = Some (b, c) -> eval (basis (t i) i) f = Q2R c * t i ^ N.to_nat b /\ (b < hot)%N.
Proof.
  destruct f as [|[b' c'] [|]]; try discriminate. simpl. destruct (N.ltb b' hot) eqn:L; [|discriminate]. intros E. injection E as <- <-.
  split; [|now apply N.ltb_lt]. unfold eval, basis. simpl. rewrite L. ring.
Qed.
Lemma basis_hot i j : basis (t i) i (hot + j)%N = if N.eqb i j then 1 else 0.
Proof.
  unfold basis. replace (N.ltb (hot + j) hot) with false by (symmetry; apply N.ltb_ge; lia).
  destruct (N.eqb_spec (hot + j) (hot + i)), (N.eqb_spec i j); try reflexivity; lia.
Qed.
Lemma diagonal i j l (C : R) : NoDup l -> sum (map (fun k => (C * if N.eqb i k then 1 else 0) * (if N.eqb j k then 1 else 0)) l) =
  if N.eqb i j && mem i l then C else 0.
Proof.
  induction l as [|k l IH]; intros ND; [simpl; now rewrite andb_false_r|]. inversion ND as [|? ? H1 H2]; subst. simpl. rewrite (IH H2).
  destruct (N.eqb_spec i j) as [->|E]; simpl.
  - destruct (N.eqb_spec j k) as [->|F]; simpl; [|lra]. destruct (mem k l) eqn:G; [apply mem_In in G; contradiction|lra].
  - destruct (N.eqb_spec i k), (N.eqb_spec j k); subst; try congruence; lra.
Qed.
Lemma NoDup_first m : NoDup (first m).
Proof. unfold first. apply Injective_map_NoDup; [intros a b E; lia | apply seq_NoDup]. Qed.
Lemma first_succ m : first (N.succ m) = 0%N :: map N.succ (first m).
Proof.
  unfold first. rewrite N2Nat.inj_succ. simpl. f_equal. rewrite <- seq_shift, !map_map. apply map_ext. intros. lia.
Qed.
Lemma read_product_ok s data h slot f : narrow (width M) (query h) = true -> narrow (width M) (key h) = true -> narrow (width M) (value h) = true ->
  state s data -> read_product M reach data h = Some (slot, f) ->
  forall i k, (i < n)%N -> heard Hardmax (first n) s i k h = if N.eqb slot k then eval (basis (t i) i) f else 0.
Proof.
  intros Nq Nk Nv St E i k Hi. unfold read_product in E.
  destruct (monomial (row_form (query h) 0 data)) as [[b c]|] eqn:Mq; [|discriminate].
  destruct (monomial (row_form (key h) 0 data)) as [[b' c']|] eqn:Mk; [|discriminate].
  destruct (offset_row data h 0) as [C|]; [|discriminate].
  destruct (nodup N.eq_dec (map at_row (value h))) as [|slot' [|]] eqn:Rows; try discriminate.
  destruct (projection h) eqn:P; [discriminate|].
  match type of E with (if ?x then _ else _) = _ => destruct x eqn:F; [|discriminate] end. injection E as <- <-.
  rewrite !andb_true_iff in F. destruct F as [[[[F1 F2] F3] F4] F5]. apply N.eqb_eq in F1. apply N.ltb_lt in F2.
  destruct (N.eqb_spec slot' k) as [->|Nk'].
  2: { apply heard_none; [exact P|]. intros I. apply (nodup_In N.eq_dec) in I. rewrite Rows in I. destruct I as [I|[]]. congruence. }
  unfold heard. rewrite P.
  assert (S : forall j, (j < n)%N -> score h s i j = Q2R c * t i ^ N.to_nat b * (Q2R c' * t j ^ N.to_nat b') + if N.eqb i j then Q2R C else 0).
  { intros j Hj. unfold score. rewrite F1, first_succ. cbn [map sum]. rewrite map_map.
    rewrite (eval_row _ _ _ _ _ _ Nq (St i Hi)), (eval_row _ _ _ _ _ _ Nk (St j Hj)).
    rewrite (proj1 (eval_monomial _ _ _ i Mq)), (proj1 (eval_monomial _ _ _ j Mk)). f_equal.
    rewrite (sum_ext _ (fun a => (Q2R C * if N.eqb i a then 1 else 0) * (if N.eqb j a then 1 else 0))).
    - rewrite diagonal by apply NoDup_first. destruct (N.eqb i j); [|reflexivity]. simpl.
      replace (mem i (first (tokens M))) with true; [reflexivity|]. symmetry. apply mem_In, In_first, Hi.
    - intros a Ia. rewrite forallb_forall in F3. specialize (F3 a Ia). unfold offset_row in F3.
      rewrite (eval_row _ _ _ _ _ _ Nq (St i Hi)), (eval_row _ _ _ _ _ _ Nk (St j Hj)).
      destruct (row_form (query h) (N.succ a) data) as [|[q d] [|]]; try discriminate.
      destruct (row_form (key h) (N.succ a) data) as [|[q' d'] [|]]; try discriminate.
      destruct (N.eqb q (hot + a) && N.eqb q' (hot + a) && Qeq_bool d' 1) eqn:G; [|discriminate]. rewrite !andb_true_iff in G. destruct G as [[G1 G2] G3].
      apply N.eqb_eq in G1. apply N.eqb_eq in G2. subst q q'. apply Qeq_real in G3. apply Qeq_real in F3. unfold eval. cbn [map sum fst snd].
      rewrite !basis_hot, G3, F3, RMicromega.Q2R_1. ring. }
  rewrite picked.
  - rewrite S by exact Hi. rewrite N.eqb_refl. unfold eval. cbn [map sum fst snd].
    unfold basis. replace (N.ltb (b + b') hot) with true by (symmetry; now apply N.ltb_lt). cbn [N.ltb N.compare].
    replace (N.ltb 0 hot) with true by reflexivity. rewrite real_red, Q2R_mult, N2Nat.inj_add, pow_add. simpl. ring.
  - reflexivity.
  - now apply In_first.
  - intros j Ij. apply In_first in Ij. rewrite (eval_row _ _ _ _ _ _ Nv (St j Ij)).
    destruct (row_form (value h) k data) as [|[z v] [|]]; try discriminate; destruct z; try discriminate.
    apply Qeq_real in F5. unfold eval, basis. simpl. rewrite F5, RMicromega.Q2R_1. ring.
  - intros j Ij. apply In_first in Ij. rewrite (S j Ij), (S i Hi), N.eqb_refl.
    destruct (N.eqb_spec i j) as [->|D]; [lra|].
    apply Qle_bool_iff, Qle_Rle in F4. rewrite !Q2R_mult, Qabs'_real, real_red, Q2R_mult in F4.
    replace (Q2R 2) with 2 in F4 by (unfold Q2R; simpl; lra).
    assert (B : forall i j, (i < n)%N -> (j < n)%N -> Rabs (Q2R c * t i ^ N.to_nat b * (Q2R c' * t j ^ N.to_nat b')) <= Rabs (Q2R c * Q2R c') * Q2R (Qpower' reach (b + b'))).
    { intros i' j' Hi' Hj'. replace (Q2R c * t i' ^ N.to_nat b * (Q2R c' * t j' ^ N.to_nat b')) with (Q2R c * Q2R c' * (t i' ^ N.to_nat b * t j' ^ N.to_nat b')) by ring.
      rewrite Rabs_mult. apply Rmult_le_compat_l; [apply Rabs_pos|]. rewrite Rabs_mult.
      assert (Z : Q2R (Qpower' reach (b + b')) = Q2R (Qpower' reach b) * Q2R (Qpower' reach b')).
      { assert (Z : forall m, Q2R (Qpower' reach m) = Q2R reach ^ N.to_nat m).
        { intros m. unfold Qpower'. rewrite N2Nat.inj_iter. induction (N.to_nat m) as [|a IH]; [exact RMicromega.Q2R_1|].
          simpl. rewrite real_red, Q2R_mult. simpl in IH. now rewrite IH. }
        rewrite !Z, N2Nat.inj_add. apply pow_add. }
      rewrite Z. apply Rmult_le_compat; try apply Rabs_pos; now apply pow_reach, small. }
    pose proof (B i j Hi Ij) as B1. pose proof (B i i Hi Hi) as B2. apply two_sided in B1. apply two_sided in B2. lra.
Qed.
Definition plain_heads (b : block) : bool :=
  forallb (fun h => narrow (width M) (query h) && narrow (width M) (key h) && narrow (width M) (value h)) (heads b).
Lemma read_products_ok s data hs : forall l, forallb (fun h => narrow (width M) (query h) && narrow (width M) (key h) && narrow (width M) (value h)) hs = true ->
  state s data -> read_products M reach data hs = Some l ->
  forall i k, (i < n)%N -> sum (map (heard Hardmax (first n) s i k) hs) = eval (basis (t i) i) (heard_form l k).
Proof.
  induction hs as [|h hs IH]; intros l F St E i k Hi; simpl in E; [injection E as <-; reflexivity|].
  simpl in F. apply andb_true_iff in F as [Fh F]. rewrite !andb_true_iff in Fh. destruct Fh as [[F1 F2] F3].
  destruct (read_product M reach data h) as [[slot f]|] eqn:R; [|discriminate].
  destruct (read_products M reach data hs) as [l'|]; [|discriminate]. injection E as <-. simpl.
  rewrite (read_product_ok s data h slot f F1 F2 F3 St R i k Hi), (IH l' F St eq_refl i k Hi).
  destruct (N.eqb slot k); [now rewrite eval_add | lra].
Qed.
Lemma basis_one i : basis (t i) i 0%N = 1.
Proof. reflexivity. Qed.
Lemma unit_form_ok f z data u i : narrow (width M) (hidden f) = true -> follows (basis (t i) i) (width M) z data ->
  activation f z u = Rmax 0 (eval (basis (t i) i) (unit_form f data u)).
Proof.
  intros F D. unfold activation, unit_form. rewrite eval_clean, eval_add, <- (bias_ok _ (basis_one i)). f_equal. f_equal. now apply (eval_row _ (width M)).
Qed.
Lemma row_filter m r v : row m r v = sum (map (fun e => number e * v (at_column e)) (filter (fun e => N.eqb (at_row e) r) m)).
Proof. unfold row. induction m as [|e m IH]; [reflexivity|]. simpl. rewrite IH. destruct (N.eqb (at_row e) r); simpl; lra. Qed.
Lemma pair_form_ok f z data slot g i : narrow (width M) (hidden f) = true -> follows (basis (t i) i) (width M) z data ->
  pair_form f data slot = Some g -> fed f z slot = eval (basis (t i) i) g.
Proof.
  intros F D E. unfold fed. rewrite row_filter, (bias_ok _ (basis_one i)). unfold pair_form in E.
  destruct (filter _ (outgoing f)) as [|e [|e' [|]]]; try discriminate; [injection E as <-; simpl; lra|].
  destruct (Qeq_bool (rational e + rational e') 0 && same_form (unit_form f data (at_column e)) (unit_form f data (at_column e'))) eqn:G; [|discriminate].
  injection E as <-. apply andb_true_iff in G as [G1 G2]. apply Qeq_real in G1. rewrite Q2R_plus, RMicromega.Q2R_0 in G1.
  rewrite eval_add, eval_scale. simpl. rewrite !(unit_form_ok f z data _ i F D). rewrite <- !real_rational.
  assert (O : eval (basis (t i) i) (unit_form f data (at_column e)) + eval (basis (t i) i) (unit_form f data (at_column e')) = 0).
  { rewrite <- eval_add, <- eval_clean. unfold same_form in G2. destruct (clean _); [reflexivity|discriminate]. }
  set (p := eval (basis (t i) i) (unit_form f data (at_column e))) in *. set (q := eval (basis (t i) i) (unit_form f data (at_column e'))) in *.
  replace q with (- p) by lra. replace (Q2R (rational e')) with (- Q2R (rational e)) by lra.
  unfold Rmax. destruct (Rle_dec 0 p), (Rle_dec 0 (- p)); try (assert (p = 0) by lra); nra.
Qed.
Lemma all_some_nth {A} (d : A) l : forall r j, all_some l = Some r -> (j < length l)%nat -> nth j l None = Some (nth j r d).
Proof.
  induction l as [|[a|] l IH]; intros r j E L; simpl in *; try lia; try discriminate.
  destruct (all_some l) as [l'|]; [|discriminate]. injection E as <-. destruct j as [|j]; [reflexivity|]. simpl. apply IH; [reflexivity|lia].
Qed.
Lemma read_powers_block_ok b s data after : state s data -> read_powers_block M reach b data = Some after -> state (run (first n) s b) after.
Proof.
  intros St E i Hi slot L. unfold read_powers_block in E. destruct (attention b) eqn:K; [discriminate|].
  destruct (read_products M reach data (heads b)) as [l|] eqn:R; [|discriminate].
  destruct (forallb _ (heads b)) eqn:F; [|discriminate].
  set (here := map (fun slot => clean (add (nth (N.to_nat slot) data []) (heard_form l slot))) (first (width M))) in *.
  assert (Z : follows (basis (t i) i) (width M) (attended (first n) b s i) here).
  { intros k Lk. unfold here. rewrite nth_first by exact Lk. rewrite eval_clean, eval_add, <- (St i Hi k Lk). unfold attended. rewrite K. f_equal.
    now apply (read_products_ok s data). }
  unfold run. destruct (feed_forward b) as [f|]; [|injection E as <-; now apply Z].
  destruct (narrow (width M) (hidden f)) eqn:Fn; [|discriminate].
  assert (J := all_some_nth [] _ after (N.to_nat slot) E). rewrite map_length in J.
  rewrite nth_first in J by exact L.
  assert (Len : (N.to_nat slot < length (first (width M)))%nat) by (unfold first; rewrite map_length, seq_length; lia).
  specialize (J Len). destruct (pair_form f here slot) as [g|] eqn:G; [|discriminate]. injection J as J.
  transitivity (eval (basis (t i) i) (clean (add (nth (N.to_nat slot) here []) g))); [|f_equal; exact J].
  rewrite eval_clean, eval_add, <- (Z slot L). f_equal. now apply (pair_form_ok f _ here).
Qed.
Lemma read_powers_blocks_ok bs : forall s data after, state s data -> read_powers_blocks M reach bs data = Some after ->
  state (fold_left (run (first n)) bs s) after.
Proof.
  induction bs as [|b bs IH]; intros s data after St E; simpl in E; [injection E as <-; exact St|].
  destruct (read_powers_block M reach b data) as [here|] eqn:R; [|discriminate]. simpl. apply (IH _ here); [|exact E].
  now apply (read_powers_block_ok b s data).
Qed.
End Correct.

Definition inside (xs : ends) (x : vector) : Prop := forall j, Q2R (fst (end_of xs j)) <= x j <= Q2R (snd (end_of xs j)).
Lemma span_ok m r x xs : inside xs x -> Q2R (fst (span m r xs)) <= row m r x <= Q2R (snd (span m r xs)).
Proof.
  intros H. unfold row. induction m as [|e m IH]; simpl; [rewrite RMicromega.Q2R_0; lra|]. destruct (span m r xs) as [a b]. simpl in IH.
  destruct (N.eqb (at_row e) r); [|simpl; lra]. specialize (H (at_column e)). unfold times. rewrite <- real_rational.
  destruct (end_of xs (at_column e)) as [lo hi]. simpl in H. destruct (Qle_bool 0 (rational e)) eqn:S; simpl; rewrite !real_red, !Q2R_plus, !Q2R_mult.
  - apply Qle_bool_iff, Qle_Rle in S. rewrite RMicromega.Q2R_0 in S. nra.
  - assert (Q2R (rational e) <= 0).
    { destruct (Rle_or_lt (Q2R (rational e)) 0) as [L|L]; [exact L|]. rewrite <- RMicromega.Q2R_0 in L. apply Rlt_Qlt in L.
      apply Qlt_le_weak, Qle_bool_iff in L. congruence. }
    nra.
Qed.
Definition line (M : model) (p : N) (x : vector) (i : N) : R := row (embedding M) (i * width M + p) x.
Theorem powers M p hots xs reach data x : read_powers M p hots xs reach = Some data -> inside xs x ->
  forall o, output M x o = sum (map (fun e => if N.eqb (at_row e) o then number e *
    eval (basis (line M p x (at_column e / width M)) (at_column e / width M)) (nth (N.to_nat (at_column e mod width M)) data []) else 0) (readout M))
    + row (bias M) o ones.
Proof.
  intros E Hx o. unfold read_powers in E. destruct (start_fits p hots M && _ && _) eqn:F; [|discriminate]. rewrite !andb_true_iff in F.
  destruct F as [[F1 F2] F3]. unfold start_fits in F1. rewrite !andb_true_iff in F1. destruct F1 as [[G1 G2] G3]. apply N.ltb_lt in G3.
  assert (S : forall i, (i < tokens M)%N -> Rabs (line M p x i) <= Q2R reach).
  { intros i Hi. rewrite forallb_forall in F2. specialize (F2 i (proj2 (In_first i _) Hi)). unfold within in F2.
    apply andb_true_iff in F2 as [A B]. apply Qle_bool_iff, Qle_Rle in A. apply Qle_bool_iff, Qle_Rle in B. rewrite Q2R_opp in A.
    pose proof (span_ok (embedding M) (i * width M + p) x xs Hx). apply Rabs_le. unfold line. lra. }
  assert (St : state M (line M p x) (embed M x) (map (start_form p hots M) (first (width M)))).
  { intros i Hi k L. rewrite nth_first by exact L. rewrite forallb_forall in G1. specialize (G1 i (proj2 (In_first i _) Hi)).
    rewrite forallb_forall in G1. specialize (G1 k (proj2 (In_first k _) L)). apply Qeq_real in G1. unfold embed. rewrite real_stored, G1.
    unfold start_value, start_form. destruct (N.eqb_spec k p) as [->|Np].
    - rewrite RMicromega.Q2R_0. unfold eval, basis, line. simpl. rewrite RMicromega.Q2R_1. ring.
    - rewrite row_none.
      2: { intros I. apply in_map_iff in I as [e [Ie I]]. rewrite forallb_forall in G2. specialize (G2 e I). apply N.eqb_eq in G2.
           rewrite Ie in G2. rewrite N.add_comm, N.mod_add in G2 by lia. rewrite N.mod_small in G2 by exact L. congruence. }
      destruct (filter _ (first (tokens M))) as [|i' l].
      + destruct (Qeq_bool (stored (memory M) 0 k) 1); unfold eval, basis; simpl; unfold Q2R; simpl; lra.
      + unfold eval. cbn [map sum fst snd]. rewrite (basis_hot M (line M p x)). replace (N.eqb (hot + i') 0) with false by (symmetry; apply N.eqb_neq; unfold hot; lia).
        cbn [orb]. destruct (N.eqb_spec (hot + i') (hot + i)) as [A|A], (N.eqb_spec i i') as [B|B]; try (exfalso; unfold hot in A; lia);
          rewrite ?RMicromega.Q2R_1, ?RMicromega.Q2R_0; lra. }
  pose proof (read_powers_blocks_ok M reach (line M p x) S (blocks M) _ _ data St E) as D.
  unfold output. f_equal. unfold row. apply sum_ext. intros e I. destruct (N.eqb (at_row e) o); [|reflexivity]. f_equal.
  rewrite forallb_forall in F3. specialize (F3 e I). apply N.ltb_lt in F3. apply D; [exact F3|]. apply N.mod_lt. lia.
Qed.
